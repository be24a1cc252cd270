; The first paragraph captures names and is only used to find references.
(name) @id

(comment) @above @text
[(string_content) (nowdoc_string) (text)] @text

(namespace_definition name: (namespace_name) @module_name body: (_)) @definition
(class_declaration name: (name) @class) @definition
(interface_declaration name: (name) @interface) @definition
(trait_declaration name: (name) @trait) @definition
(enum_declaration name: (name) @enum) @definition
(enum_case name: (name) @constant) @definition
(function_definition name: (name) @function) @definition
(method_declaration name: (name) @method) @definition
(const_declaration (const_element (name) @constant)) @definition
(property_declaration (property_element name: (variable_name (name) @attribute))) @definition
(property_promotion_parameter name: (variable_name (name) @attribute)) @definition
(program (expression_statement
  (assignment_expression left: (variable_name (name) @variable)) @definition))

(namespace_use_declaration (namespace_use_clause [(name) (qualified_name)] @module)) @import
(namespace_use_declaration (namespace_name) @module
  body: (namespace_use_group (namespace_use_clause (name) @imported))) @import
(include_expression [(string (string_content) @module) (encapsed_string (string_content) @module)]) @import
(include_once_expression [(string (string_content) @module) (encapsed_string (string_content) @module)]) @import
(require_expression [(string (string_content) @module) (encapsed_string (string_content) @module)]) @import
(require_once_expression [(string (string_content) @module) (encapsed_string (string_content) @module)]) @import
