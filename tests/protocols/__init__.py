"""Wire formats: parsing, exact bytes, and what strict clients make of them."""
