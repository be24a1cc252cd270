; The first paragraph captures names and is only used to find references.
[(identifier) (field_identifier) (type_identifier) (package_identifier)] @id

(comment) @above @text
[(interpreted_string_literal_content) (raw_string_literal_content)] @text

(function_declaration name: (identifier) @function) @definition
(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @owner
    (pointer_type (type_identifier) @owner)
    (generic_type type: (type_identifier) @owner)
    (pointer_type (generic_type type: (type_identifier) @owner))
  ]))
  name: (field_identifier) @method) @definition
(type_spec name: (type_identifier) @type) @definition
(type_spec name: (type_identifier) @struct type: (struct_type)) @definition
(type_spec name: (type_identifier) @interface type: (interface_type)) @definition
(type_alias name: (type_identifier) @type) @definition
(field_declaration name: (field_identifier) @attribute) @definition
(method_elem name: (field_identifier) @method) @definition
(source_file (const_declaration (const_spec name: (identifier) @constant) @definition))
(source_file (var_declaration (var_spec name: (identifier) @variable) @definition))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @variable) @definition)))

(import_spec path: (interpreted_string_literal (interpreted_string_literal_content) @module)) @import
