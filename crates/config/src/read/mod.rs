//! From the tree of a file to a [`Config`](crate::model::Config): what concerns several options at once.

pub(crate) mod file;
mod server;
mod transport;
