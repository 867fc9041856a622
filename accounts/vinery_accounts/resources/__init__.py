"""One definition of each managed resource: its fields, filters, actions, rules and texts.

The management API, the console, the admin and the commands read these definitions. A new column
of a resource therefore needs a model field and a serializer field."""
