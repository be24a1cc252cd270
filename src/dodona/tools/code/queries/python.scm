; The first paragraph captures names and is only used to find references.
(identifier) @id

(comment) @above @text
(decorator) @above
(string_content) @text

(class_definition name: (identifier) @class) @definition
(function_definition name: (identifier) @function) @definition
(type_alias_statement left: (type (identifier) @type)) @definition

; Function-local ones are removed later: a pattern per context would be slower.
(assignment left: (_) @targets) @definition

(import_statement name: (dotted_name) @module) @import
(import_statement name: (aliased_import name: (dotted_name) @module)) @import
(import_from_statement module_name: (_) @module) @import
(import_from_statement name: (dotted_name) @imported)
(import_from_statement name: (aliased_import name: (dotted_name) @imported))
(future_import_statement name: (dotted_name) @imported) @import
