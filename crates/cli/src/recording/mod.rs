//! Recordings (docs/recordings.md).

mod command;
mod reader;
mod values;

pub use command::record;
pub use reader::Recording;
pub use values::configured_values;
