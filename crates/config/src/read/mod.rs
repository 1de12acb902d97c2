//! From a file's tree to a [`Config`](crate::model::Config): checks that concern several options at
//! once.

pub(crate) mod file;
pub(crate) mod server;
mod transport;
pub(crate) mod versions;
