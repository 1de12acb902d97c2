//! The outputs of the definitions: the JSON Schema, the reference, the sample file, and a shown
//! configuration.

pub(crate) mod reference;
pub(crate) mod sample;
pub(crate) mod schema;
mod shown;
