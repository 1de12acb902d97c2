//! Limits that peers share fairly, for any type that tells peers apart.
//!
//! - [`Table`]: entries counted per share; [`Newcomer`] finds the one that has to leave a full table.
//! - [`Budget`]: an amount, of which each share may hold a [`Part`].
//! - [`Semaphore`]: permits that are handed out in turn.
//! - [`Rate`]: how often something may happen per key; [`LogLimit`]: how often a line is logged.
//!
//! A *share* is what one peer has of a limit. One share may be as large as the limit while no other peer needs any; what
//! is given up for a newcomer is taken from the largest share first.

mod budget;
mod log_limit;
mod rate;
mod semaphore;
mod table;

pub use budget::{Budget, Part, Reservation, Spent};
pub use log_limit::LogLimit;
pub use rate::{Charge, Quota, Rate, TooMany};
pub use semaphore::{Claim, Full, Member, Permit, PermitLimits, Semaphore};
pub use table::{Candidate, Newcomer, Rule, Table};
