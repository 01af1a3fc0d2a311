//! Checks of the second factor of a login with a password. `login` asks for it, and `totp` turns it on and off.

use access::{SecondFactor, TokenHash};
use model::Timestamp;
use model::api::PasswordText;

use super::Api;
use super::problem::{ApiError, Code};
use crate::auth::{TotpSecret, recovery_hash};
use crate::clock::{Clock, SystemClock};

/// Why a second factor is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecondProblem {
    /// No code was sent.
    Missing,
    /// The code is wrong, or was used before.
    Wrong,
}

impl From<SecondProblem> for ApiError {
    fn from(problem: SecondProblem) -> Self {
        let detail = match problem {
            SecondProblem::Missing => "the account has a second factor: send a code too",
            SecondProblem::Wrong => "the code is wrong, or was used before",
        };
        Self::new(Code::SecondFactorRequired, detail)
    }
}

/// Checks the code of a login against the second factor of the account; `None` if the account has none.
///
/// # Errors
/// If the secret cannot be decrypted: the servers have different keys.
pub(super) fn second_factor(
    api: &Api,
    account: &str,
    code: Option<&PasswordText>,
) -> Result<Result<Option<SecondFactor>, SecondProblem>, ApiError> {
    let totp = api.access.read(|directory| directory.login(account).and_then(|login| login.totp.clone()));
    let Some(totp) = totp else { return Ok(Ok(None)) };
    let Some(code) = code.filter(|code| !code.0.trim().is_empty()) else {
        return Ok(Err(SecondProblem::Missing));
    };
    if let Some(hash) = recovery_hash(&code.0).map(TokenHash) {
        let second = totp.recovery.contains(&hash).then_some(SecondFactor::Recovery(hash));
        return Ok(second.map(Some).ok_or(SecondProblem::Wrong));
    }
    let context = context(api, account)?;
    let text = api.alerts.sealer().open_text(&context, &totp.sealed);
    let text = text.map_err(|error| ApiError::internal(&error))?;
    let secret = TotpSecret::parse(&text);
    let step = secret.and_then(|it| it.step_of(&code.0, seconds(SystemClock.now()), totp.last_step));
    Ok(step.map(|step| Some(SecondFactor::Step(step))).ok_or(SecondProblem::Wrong))
}

/// Returns what the secret of an account is sealed for. A later account of the same name is another one.
pub(super) fn context(api: &Api, account: &str) -> Result<String, ApiError> {
    let created = api.access.read(|directory| Some(directory.account(account)?.created_at.as_millis()));
    let gone = || ApiError::new(Code::Unauthenticated, "the account does not exist any more");
    Ok(format!("totp/{account}/{}", created.ok_or_else(gone)?))
}

pub(super) fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(0) / 1_000
}
