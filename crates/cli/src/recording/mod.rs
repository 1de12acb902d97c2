//! Recordings (docs/recordings.md).

mod command;
mod reader;
pub(crate) mod script;
mod values;

pub use command::record;
pub use reader::Recording;
pub use values::{configured_values, values_of};
