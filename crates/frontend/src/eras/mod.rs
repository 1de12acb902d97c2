//! The rules of each protocol era: how to read and check requests, and the required members of
//! answers.

pub(crate) mod description;
pub(crate) mod era;
pub(crate) mod fault;
pub(crate) mod legacy;
pub(crate) mod modern;
pub(crate) mod notifications;
pub(crate) mod params;
pub(crate) mod render;
mod structured;
