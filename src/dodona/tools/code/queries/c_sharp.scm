; The first paragraph captures names and is only used to find references.
(identifier) @id

(comment) @above @text
[(string_literal_content) (string_content) (raw_string_content) (verbatim_string_literal)] @text

(namespace_declaration name: (_) @module_name) @definition
(class_declaration name: (identifier) @class) @definition
(record_declaration name: (identifier) @class) @definition
(struct_declaration name: (identifier) @struct) @definition
(interface_declaration name: (identifier) @interface) @definition
(enum_declaration name: (identifier) @enum) @definition
(enum_member_declaration name: (identifier) @constant) @definition
(delegate_declaration name: (identifier) @type) @definition
(method_declaration name: (identifier) @method) @definition
(local_function_statement name: (identifier) @function) @definition
(constructor_declaration name: (identifier) @method) @definition
(destructor_declaration name: (identifier) @method) @definition
(property_declaration name: (identifier) @attribute) @definition
(event_declaration name: (identifier) @attribute) @definition
(field_declaration (variable_declaration
  (variable_declarator name: (identifier) @attribute))) @definition
(event_field_declaration (variable_declaration
  (variable_declarator name: (identifier) @attribute))) @definition

(using_directive [(identifier) (qualified_name)] @module) @import
