//! Accounts, roles and tokens through the API, and what they change for other routes.
