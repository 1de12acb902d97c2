//! Recordings: the messages that crossed the gateway's edges, as lines of JSON (docs/recordings.md).

mod format;

pub use format::{
    Definitions, End, Ending, Framing, Head, Line, Loss, Lost, Message, RecordedServer, Side, Text,
    To, VERSION, line,
};
