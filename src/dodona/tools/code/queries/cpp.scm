; Additions of C++ to c.scm.
(namespace_identifier) @id

(raw_string_content) @text

(class_specifier name: (type_identifier) @class body: (_)) @definition
(class_specifier name: (template_type name: (type_identifier) @class) body: (_)) @definition
(struct_specifier name: (template_type name: (type_identifier) @struct) body: (_)) @definition
(namespace_definition name: (namespace_identifier) @module_name) @definition
(namespace_definition name: (nested_namespace_specifier) @module_name) @definition
(alias_declaration name: (type_identifier) @type) @definition
(concept_definition name: (identifier) @type) @definition

; In a class; destructors and operators by their full name.
(function_definition declarator: (function_declarator
  declarator: [(field_identifier) (destructor_name) (operator_name)] @method)) @definition
(function_definition declarator: (_
  (function_declarator declarator: [(field_identifier) (operator_name)] @method))) @definition
(field_declaration declarator: (function_declarator
  declarator: [(field_identifier) (destructor_name) (operator_name)] @method)) @definition
(field_declaration declarator: (_
  (function_declarator declarator: [(field_identifier) (operator_name)] @method))) @definition
(field_declaration declarator: (reference_declarator (field_identifier) @attribute)) @definition
(declaration declarator: (function_declarator declarator: (destructor_name) @method)) @definition

; Outside of the class: Meter::reserve.
(function_definition declarator: (function_declarator declarator: (qualified_identifier
  scope: (_) @owner name: [(identifier) (destructor_name) (operator_name)] @method))) @definition
(function_definition declarator: (_ (function_declarator declarator: (qualified_identifier
  scope: (_) @owner name: [(identifier) (destructor_name) (operator_name)] @method)))) @definition
(function_definition declarator: (function_declarator declarator: (qualified_identifier
  scope: (_) @owner name: (qualified_identifier
    scope: (_) @owner name: [(identifier) (destructor_name) (operator_name)] @method)))) @definition
(function_definition declarator: (_ (function_declarator declarator: (qualified_identifier
  scope: (_) @owner name: (qualified_identifier
    scope: (_) @owner name: [(identifier) (destructor_name) (operator_name)] @method))))) @definition
(function_definition declarator: (reference_declarator
  (function_declarator declarator: (identifier) @function))) @definition

(declaration_list (declaration declarator: [
  (identifier) @variable
  (init_declarator declarator: (identifier) @variable)
  (init_declarator declarator: (array_declarator declarator: (identifier) @variable))
]) @definition)
