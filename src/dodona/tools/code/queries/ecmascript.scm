; The first paragraph captures names and is only used to find references.
[(identifier) (property_identifier) (private_property_identifier)
 (shorthand_property_identifier) (shorthand_property_identifier_pattern)] @id

(comment) @above @text
[(string_fragment) (regex_pattern)] @text

(class_declaration name: (_) @class) @definition
(function_declaration name: (identifier) @function) @definition
(generator_function_declaration name: (identifier) @function) @definition
(method_definition name: (_) @method) @definition

(program (lexical_declaration (variable_declarator name: (identifier) @variable) @definition))
(program (variable_declaration (variable_declarator name: (identifier) @variable) @definition))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @variable) @definition))
(variable_declarator name: (identifier) @class value: (class)) @definition
(variable_declarator
  name: (identifier) @function
  value: [(arrow_function) (function_expression) (generator_function)]) @definition
(pair
  key: (property_identifier) @function
  value: [(arrow_function) (function_expression) (generator_function)]) @definition
(assignment_expression
  left: (member_expression property: (property_identifier) @function)
  right: [(arrow_function) (function_expression) (generator_function)]) @definition
(assignment_expression
  left: (member_expression property: (property_identifier) @class) right: (class)) @definition

(import_statement source: (string (string_fragment) @module)) @import
(export_statement source: (string (string_fragment) @module)) @import
(import_specifier name: (_) @imported)
(import_clause (identifier) @imported)
((call_expression
  function: (identifier) @_function
  arguments: (arguments . (string (string_fragment) @module))) @import
  (#eq? @_function "require"))
(call_expression
  function: (import)
  arguments: (arguments . (string (string_fragment) @module))) @import
(decorator) @above
