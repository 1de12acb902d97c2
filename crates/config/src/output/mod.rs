//! What is made from the definitions: the JSON Schema, the reference, the sample file, and a configuration as it is shown.

pub(crate) mod reference;
pub(crate) mod sample;
pub(crate) mod schema;
mod shown;
