"""`python -m distcondense`, installed or straight from a checkout."""

from distcondense.cli import main

if __name__ == "__main__":
    main()
