; The first paragraph captures names and is only used to find references.
[(identifier) (type_identifier)] @id

[(line_comment) (block_comment)] @above @text
[(string_fragment) (multiline_string_fragment)] @text

(class_declaration name: (identifier) @class) @definition
(record_declaration name: (identifier) @class) @definition
(interface_declaration name: (identifier) @interface) @definition
(annotation_type_declaration name: (identifier) @interface) @definition
(enum_declaration name: (identifier) @enum) @definition
(enum_constant name: (identifier) @constant) @definition
(method_declaration name: (identifier) @method) @definition
(constructor_declaration name: (identifier) @method) @definition
(compact_constructor_declaration name: (identifier) @method) @definition
(annotation_type_element_declaration name: (identifier) @method) @definition
(field_declaration declarator: (variable_declarator name: (identifier) @attribute)) @definition
(constant_declaration declarator: (variable_declarator name: (identifier) @constant)) @definition

(import_declaration [(scoped_identifier) (identifier)] @module) @import
