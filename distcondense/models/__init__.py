"""What is condensed against and what is trained."""
