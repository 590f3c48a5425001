"""One folder a method, one interface (`base.Method`): public facts → prepared run → condensed sets."""
