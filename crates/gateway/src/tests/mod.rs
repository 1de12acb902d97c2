//! Tests of the core with servers that answer from a script.

mod aliases;
mod apps;
mod changes;
mod endpoints;
mod extensions;
mod fake;
mod freshness;
mod lean;
mod listening;
mod policy;
mod principals;
mod reads;
mod resolution;
mod rewriting;
mod rights;
mod routing;
mod sign_in;
mod tasks;
mod topology;
