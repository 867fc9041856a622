"""The protocols: parsing, exact bytes, and parsing of answers by strict clients."""
