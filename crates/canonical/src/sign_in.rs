//! A server's demand that its user signs in.

/// The sign-in that a user has to do before a server carries out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInWish {
    /// The `http` or `https` page where it begins; `None` if the message says everything.
    pub url: Option<String>,
    /// The text for the user.
    pub message: String,
    /// Identifies the sign-in to the client (2025-11-25 client/elicitation, URL Mode Elicitation
    /// Requests).
    pub id: String,
}
