//! Limits that peers share fairly, for any type that identifies peers.
//!
//! - [`Table`]: entries counted per share; [`Newcomer`] finds the one that has to leave a full
//!   table.
//! - [`Budget`]: an amount, of which each share may hold a [`Part`].
//! - [`Semaphore`]: permits that are handed out in turn.
//! - [`Rate`]: how often something may happen per key; [`LogLimit`]: how many lines a
//!   party causes.
//!
//! A *share* is one peer's part of a limit. It may be as large as the limit while no other peer
//! needs any. A newcomer takes from the largest share first.

mod budget;
mod limit;
mod log_limit;
mod rate;
mod semaphore;
mod table;

pub use budget::{Budget, Part, Reservation, Spent};
#[cfg(debug_assertions)]
pub use limit::check_limits;
pub use limit::limit;
pub use log_limit::LogLimit;
pub use rate::{Charge, Quota, Rate, TooMany};
pub use semaphore::{Claim, Full, Member, Permit, PermitLimits, Semaphore};
pub use table::{Candidate, Newcomer, Rule, Table};
