//! Who a client is, what it may do, and how a listener finds out: the types between the listeners, which have requests,
//! and the crate `auth`, which verifies what they carry.

mod access;
mod credentials;
mod denial;
mod identity;
mod sign_in;

pub use access::{Authenticate, Authentication, Open};
pub use credentials::{ConnectionFacts, Credentials, SocketPeer, resource_url};
pub use denial::Denial;
pub use identity::{Identity, Scopes, Source, Validity};
pub use sign_in::{Attempt, Begun, IssuerAnswer, SignIn, SignInError, SignInSettings, Signing};
