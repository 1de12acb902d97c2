//! The rules of each protocol era: how its requests are read and checked, and what its answers must
//! have.

pub(crate) mod description;
pub(crate) mod era;
pub(crate) mod fault;
pub(crate) mod legacy;
pub(crate) mod modern;
pub(crate) mod notifications;
pub(crate) mod params;
pub(crate) mod render;
mod structured;
