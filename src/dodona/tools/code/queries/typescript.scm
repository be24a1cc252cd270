; In addition to ecmascript.scm. The first paragraph captures names.
(type_identifier) @id

(public_field_definition name: (_) @attribute) @definition
(abstract_class_declaration name: (_) @class) @definition
(interface_declaration name: (_) @interface) @definition
(type_alias_declaration name: (_) @type) @definition
(enum_declaration name: (_) @enum) @definition
(enum_body name: (property_identifier) @constant @definition)
(enum_assignment name: (property_identifier) @constant) @definition
(function_signature name: (identifier) @function) @definition
(method_signature name: (_) @method) @definition
(abstract_method_signature name: (_) @method) @definition
(property_signature name: (_) @attribute) @definition
(internal_module name: (_) @module_name) @definition
(module name: (_) @module_name) @definition
(ambient_declaration (lexical_declaration (variable_declarator name: (identifier) @variable) @definition))
(ambient_declaration (variable_declaration (variable_declarator name: (identifier) @variable) @definition))
