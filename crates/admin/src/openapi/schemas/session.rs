//! Who makes requests.

use utoipa::ToSchema;

/// Who makes the request, and how to sign in.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Session {
    /// Null where nobody is signed in.
    #[schema(required = true)]
    identity: Option<Identity>,
    sign_in: SignIn,
}

/// An operator or viewer.
#[derive(ToSchema)]
struct Identity {
    name: String,
    source: String,
    /// `operator` or `viewer`.
    role: String,
    /// Whether a session of the page shows it.
    session: bool,
}

/// How to sign in.
#[derive(ToSchema)]
struct SignIn {
    /// Whether a token signs in.
    token: bool,
    /// The issuer of `admin.signIn`.
    #[schema(required = true)]
    issuer: Option<String>,
}

/// A token to sign in with.
#[derive(ToSchema)]
pub(crate) struct Token {
    token: String,
}

/// Where the browser goes.
#[derive(ToSchema)]
pub(crate) struct Location {
    location: String,
}

/// What the issuer has added to the address.
#[derive(ToSchema)]
pub(crate) struct IssuerAnswer {
    #[schema(nullable = false)]
    code: Option<String>,
    #[schema(nullable = false)]
    state: Option<String>,
    #[schema(nullable = false)]
    iss: Option<String>,
    #[schema(nullable = false)]
    error: Option<String>,
}
