//! The wish of a server that its user signs in.

/// What a user is shown who has to sign in before a server carries out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInWish {
    /// The page where it begins, of `http` or `https`; `None` where the message says all.
    pub url: Option<String>,
    /// What the user is told.
    pub message: String,
    /// Names the sign-in towards the client (2025-11-25 client/elicitation, URL Mode Elicitation Requests).
    pub id: String,
}
