; The first paragraph captures names and is only used to find references.
[(identifier) (field_identifier) (type_identifier)] @id

(comment) @above @text
[(string_content) (system_lib_string)] @text

(function_definition declarator: (function_declarator declarator: (identifier) @function)) @definition
(function_definition declarator: (pointer_declarator
  (function_declarator declarator: (identifier) @function))) @definition
(function_definition declarator: (pointer_declarator (pointer_declarator
  (function_declarator declarator: (identifier) @function)))) @definition
(declaration declarator: (function_declarator declarator: (identifier) @function)) @definition
(declaration declarator: (pointer_declarator
  (function_declarator declarator: (identifier) @function))) @definition

(translation_unit (declaration declarator: [
  (identifier) @variable
  (pointer_declarator declarator: (identifier) @variable)
  (array_declarator declarator: (identifier) @variable)
  (init_declarator declarator: (identifier) @variable)
  (init_declarator declarator: (pointer_declarator declarator: (identifier) @variable))
  (init_declarator declarator: (array_declarator declarator: (identifier) @variable))
  (init_declarator declarator: (pointer_declarator
    (array_declarator declarator: (identifier) @variable)))
  (init_declarator declarator: (array_declarator
    (array_declarator declarator: (identifier) @variable)))
]) @definition)

(struct_specifier name: (type_identifier) @struct body: (_)) @definition
(union_specifier name: (type_identifier) @struct body: (_)) @definition
(enum_specifier name: (type_identifier) @enum body: (_)) @definition
(enumerator name: (identifier) @constant) @definition
(type_definition declarator: [
  (type_identifier) @type
  (pointer_declarator declarator: (type_identifier) @type)
  (array_declarator declarator: (type_identifier) @type)
  (function_declarator declarator: (parenthesized_declarator
    (pointer_declarator declarator: (type_identifier) @type)))
  (function_declarator declarator: (type_identifier) @type)
]) @definition
(field_declaration declarator: [
  (field_identifier) @attribute
  (pointer_declarator declarator: (field_identifier) @attribute)
  (array_declarator declarator: (field_identifier) @attribute)
  (function_declarator declarator: (parenthesized_declarator
    (pointer_declarator declarator: (field_identifier) @attribute)))
]) @definition

(preproc_def name: (identifier) @macro) @definition
(preproc_function_def name: (identifier) @macro) @definition

(preproc_include path: (string_literal (string_content) @module)) @import
(preproc_include path: (system_lib_string) @module) @import
