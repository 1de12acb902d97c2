//! Code that the integration tests share with the child process that they start.

pub mod rmcp_server;

pub use fanlight_testkit::slicer;
