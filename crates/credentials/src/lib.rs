//! The types between the listeners, which receive requests with credentials, and the crate `auth`,
//! which verifies the credentials.

mod access;
mod pages;
mod sign_in;

pub use access::{
    Authenticate, Authentication, ConnectionFacts, Credentials, Denial, Open, SocketPeer,
    resource_url,
};
pub use pages::{PageRequest, Pages, PendingPage, cookies, escaped_html};
pub use sign_in::{Begun, CommonSessions, IdToken, KeptSession, SignIn, SignInError};
