//! Validation of alert rules, channels, silences, monitors and pings.

use super::{Check, Invalid, shown, too_long, too_many};
use crate::alert::{
    AlertCondition, AlertRuleSpec, ChannelSpec, Escalation, MonitorSpec, MonitorTiming, SecretText,
    SubjectKind, Target,
};
use crate::api::{NewPing, NewSilence};
use crate::limits;
use crate::time::{Duration, Timestamp};

/// Checks an alert rule beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn alert_rule(rule: &AlertRuleSpec) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&rule.name);
    check.name("namespace", &rule.namespace);
    check.owner(rule.owner.as_deref());
    check.note("description", rule.description.as_deref());
    condition(&mut check, rule);
    selection(&mut check, rule);
    check.ensure(rule.notify.len() <= limits::RULE_CHANNELS_MAX, "notify", || {
        too_many(rule.notify.len(), limits::RULE_CHANNELS_MAX)
    });
    for (i, channel) in rule.notify.iter().enumerate() {
        let at = format!("notify[{i}]");
        check.name(&at, channel);
        check.ensure(!rule.notify[..i].contains(channel), &at, || {
            format!("repeats `{}`: expected each channel once", shown(channel))
        });
    }
    if let Some(escalation) = &rule.escalate {
        escalate(&mut check, rule, escalation);
    }
    check.between("repeat_every", rule.repeat_every, limits::REPEAT_MIN, limits::REPEAT_MAX);
    if let Some(runbook) = &rule.runbook {
        check.url("runbook", runbook);
    }
    check.finish()
}

fn condition(check: &mut Check, rule: &AlertRuleSpec) {
    let at = |field: &str| format!("when.{}.{field}", rule.when.name());
    match &rule.when {
        AlertCondition::JobFailed { in_a_row } | AlertCondition::RunFailed { in_a_row } => {
            check.count(&at("in_a_row"), *in_a_row);
        }
        AlertCondition::FailureRate { failures, within } => {
            check.count(&at("failures"), *failures);
            check.between(&at("within"), *within, Duration::from_secs(60), limits::ALERT_PERIOD_MAX);
        }
        AlertCondition::JobLate { after } | AlertCondition::JobSlow { after } => {
            check.between(&at("after"), *after, Duration::from_secs(1), limits::ALERT_PERIOD_MAX);
        }
        AlertCondition::NoSuccess { within } => {
            check.between(&at("within"), *within, Duration::from_secs(60), limits::SILENCE_MAX);
            let is_exact = rule.matches.name.as_ref().is_some_and(|name| !name.contains('*'));
            check.ensure(is_exact, "match.name", || {
                "expected the name of a job without `*`, because `no_success` waits for the success of one name".into()
            });
        }
        AlertCondition::QueueDelay { longer_than } | AlertCondition::ServiceDegraded { longer_than } => {
            check.between(&at("longer_than"), *longer_than, Duration::from_secs(1), limits::ALERT_PERIOD_MAX);
        }
        AlertCondition::JobOverdue {}
        | AlertCondition::FiringSkipped {}
        | AlertCondition::SchedulePaused {}
        | AlertCondition::RolloutFailed {}
        | AlertCondition::WorkerLost {}
        | AlertCondition::MonitorDown {} => {}
    }
}

fn escalate(check: &mut Check, rule: &AlertRuleSpec, escalation: &Escalation) {
    check.between("escalate.after", escalation.after, limits::REPEAT_MIN, limits::REPEAT_MAX);
    let channels = &escalation.notify;
    check.ensure((1..=limits::RULE_CHANNELS_MAX).contains(&channels.len()), "escalate.notify", || {
        format!("has {} entries: expected 1 to {}", channels.len(), limits::RULE_CHANNELS_MAX)
    });
    check.ensure(!rule.notify.is_empty(), "escalate", || {
        "needs channels in `notify`: the time counts from their notification".into()
    });
    for (i, channel) in channels.iter().enumerate() {
        let at = format!("escalate.notify[{i}]");
        check.name(&at, channel);
        check.ensure(!channels[..i].contains(channel) && !rule.notify.contains(channel), &at, || {
            format!("repeats `{}`: expected each channel once, in `notify` or here", shown(channel))
        });
    }
}

fn selection(check: &mut Check, rule: &AlertRuleSpec) {
    let matches = &rule.matches;
    if let Some(name) = &matches.name {
        check.pattern("match.name", name);
    }
    check.labels("match.labels", &matches.labels);
    if let Some(queue) = &matches.queue {
        check.name("match.queue", queue);
    }
    if let Some(owner) = &matches.owner {
        check.ensure(!owner.is_empty() && owner.len() <= limits::OWNER_LEN_MAX, "match.owner", || {
            format!("has {} bytes: expected 1 to {}", owner.len(), limits::OWNER_LEN_MAX)
        });
    }
    let (is_job, is_monitor) =
        (rule.when.subject() == SubjectKind::Job, rule.when.subject() == SubjectKind::Monitor);
    let owned = "only conditions of jobs and monitors have it";
    let fields = [
        ("match.owner", matches.owner.is_some() && !is_job && !is_monitor, owned),
        ("match.queue", matches.queue.is_some() && !is_job, "only conditions of jobs have it"),
        ("match.labels", !matches.labels.is_empty() && !is_job && !is_monitor, owned),
    ];
    for (path, _, why) in fields.into_iter().filter(|(_, is_wrong, _)| *is_wrong) {
        check.fail(path, format!("cannot be combined with `{}`: {why}", rule.when.name()));
    }
}

/// Checks a monitor beyond its types, except for its cron expression and its time zone, which the caller compiles.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn monitor(monitor: &MonitorSpec) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&monitor.name);
    check.name("namespace", &monitor.namespace);
    check.owner(monitor.owner.as_deref());
    check.labels("labels", &monitor.labels);
    check.note("description", monitor.description.as_deref());
    match &monitor.timing {
        MonitorTiming::Every(period) => {
            let (min, max) = (limits::MONITOR_PERIOD_MIN, limits::MONITOR_PERIOD_MAX);
            check.between("timing.every", *period, min, max);
        }
        MonitorTiming::Cron(cron) => {
            check.cron("timing.cron.expression", &cron.expression);
        }
    }
    check.between("grace", monitor.grace, Duration::from_secs(1), limits::ALERT_PERIOD_MAX);
    if let Some(run_time_max) = monitor.run_time_max {
        check.between("run_time_max", run_time_max, Duration::from_secs(1), limits::ALERT_PERIOD_MAX);
    }
    check.finish()
}

/// Checks a ping beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn ping(ping: &NewPing) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.ensure(ping.kind.is_none() || ping.exit_code.is_none(), "exit_code", || {
        "cannot be combined with `kind`: 0 reports a success, and another exit code a failure".into()
    });
    let length = ping.message.as_ref().map_or(0, String::len);
    check.ensure(length <= limits::PING_BODY_BYTES_MAX, "message", || {
        too_long(length, limits::PING_BODY_BYTES_MAX)
    });
    check.finish()
}

/// Checks a channel beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn channel(channel: &ChannelSpec) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&channel.name);
    check.name("namespace", &channel.namespace);
    check.note("description", channel.description.as_deref());
    let kind = channel.to.kind();
    let at = |field: &str| format!("to.{kind}.{field}");
    match &channel.to {
        Target::Webhook { url, secret, headers } => {
            check.url(&at("url"), url);
            if let Some(secret) = secret.as_ref().filter(|secret| !secret.is_hidden()) {
                check.secret(&at("secret"), secret);
                check.ensure(secret.expose().len() >= 16, &at("secret"), || {
                    format!("has {} bytes: expected at least 16", secret.expose().len())
                });
            }
            check.headers(&at("headers"), headers);
        }
        Target::Alertmanager { url, headers } => {
            check.url(&at("url"), url);
            check.headers(&at("headers"), headers);
        }
        Target::Slack { url } | Target::Teams { url } | Target::Discord { url } | Target::Wecom { url } => {
            check.secret_url(&at("url"), url);
        }
        Target::Dingtalk { url, secret } | Target::Feishu { url, secret } => {
            check.secret_url(&at("url"), url);
            if let Some(secret) = secret {
                check.secret(&at("secret"), secret);
            }
        }
        Target::Telegram { token, chat, url } => {
            check.secret(&at("token"), token);
            check.one_line(&at("chat"), chat);
            check.optional_url(&at("url"), url.as_deref());
        }
        Target::Pagerduty { routing_key, url } => {
            check.secret(&at("routing_key"), routing_key);
            check.optional_url(&at("url"), url.as_deref());
        }
        Target::Opsgenie { api_key, url } => {
            check.secret(&at("api_key"), api_key);
            check.optional_url(&at("url"), url.as_deref());
        }
        Target::Email { to, from, server, username, password } => {
            check.ensure((1..=limits::RECIPIENTS_MAX).contains(&to.len()), &at("to"), || {
                format!("has {} entries: expected 1 to {}", to.len(), limits::RECIPIENTS_MAX)
            });
            for (i, recipient) in to.iter().enumerate() {
                check.email(&at(&format!("to[{i}]")), recipient);
            }
            check.email(&at("from"), from);
            let schemes = ["smtps://", "smtp+starttls://", "smtp://"];
            let host = schemes.iter().find_map(|scheme| server.strip_prefix(scheme));
            let is_host = host.is_some_and(is_host_and_port);
            check.ensure(is_host, &at("server"), || {
                format!(
                    "`{}` is not the address of an SMTP server: expected `smtps://HOST[:PORT]`, \
                     `smtp+starttls://HOST[:PORT]` or `smtp://HOST[:PORT]`",
                    shown(server)
                )
            });
            if let Some(username) = username {
                check.one_line(&at("username"), username);
            }
            if let Some(password) = password {
                check.password(&at("password"), password);
            }
            check.ensure(username.is_some() == password.is_some(), &at("password"), || {
                "expected both `username` and `password`, or none of them".into()
            });
            let is_plain = server.starts_with("smtp://");
            check.ensure(!is_plain || password.is_none(), &at("server"), || {
                "would send the password without encryption: use `smtps://` or `smtp+starttls://`".into()
            });
        }
    }
    check.finish()
}

/// Checks a new silence beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn silence(silence: &NewSilence, now: Timestamp) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.name("namespace", &silence.namespace);
    for (path, pattern) in [("rule", &silence.rule), ("subject", &silence.subject)] {
        if let Some(pattern) = pattern {
            check.pattern(path, pattern);
        }
    }
    if let Some(starts_at) = silence.starts_at {
        check.ensure(starts_at <= now + limits::SILENCE_MAX, "starts_at", || {
            format!(
                "`{starts_at}` is too far in the future: expected at most {} from now",
                limits::SILENCE_MAX
            )
        });
        let length = if silence.recurrence.is_some() { limits::SILENCE_MAX } else { silence.duration };
        check.ensure(starts_at + length > now, "starts_at", || "the silence would end in the past".into());
    }
    let longest = match &silence.recurrence {
        None => limits::SILENCE_MAX,
        Some(cron) => {
            check.cron("recurrence.expression", &cron.expression);
            limits::ALERT_PERIOD_MAX
        }
    };
    check.between("duration", silence.duration, Duration::from_secs(60), longest);
    if let Some(ends_at) = silence.ends_at {
        let latest = silence.starts_at.unwrap_or(now) + limits::SILENCE_MAX;
        check.ensure(silence.recurrence.is_some(), "ends_at", || {
            "needs `recurrence`: `duration` decides when another silence ends".into()
        });
        check.ensure(now < ends_at && ends_at <= latest, "ends_at", || {
            format!("`{ends_at}` is out of range: expected a time from now to {latest}")
        });
    }
    check.ensure(!silence.reason.trim().is_empty(), "reason", || "must not be empty".into());
    check.note("reason", Some(&silence.reason));
    check.finish()
}

impl Check {
    fn count(&mut self, path: &str, count: u32) {
        self.ensure((1..=limits::ALERT_COUNT_MAX).contains(&count), path, || {
            format!("`{count}` is out of range: expected 1 to {}", limits::ALERT_COUNT_MAX)
        });
    }

    fn between(&mut self, path: &str, value: Duration, min: Duration, max: Duration) {
        self.ensure((min..=max).contains(&value), path, || {
            format!("`{value}` is out of range: expected {min} to {max}")
        });
    }

    fn cron(&mut self, path: &str, expression: &str) {
        let length = expression.len();
        self.ensure(length <= limits::ALERT_CRON_LEN_MAX, path, || {
            too_long(length, limits::ALERT_CRON_LEN_MAX)
        });
    }

    /// Checks a pattern of names: the characters of a name, and `*`.
    fn pattern(&mut self, path: &str, pattern: &str) {
        let ok = !pattern.is_empty()
            && pattern.len() <= limits::NAME_LEN_MAX
            && pattern.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*".contains(&b));
        self.ensure(ok, path, || {
            format!(
                "`{}` is not a pattern of names: expected 1 to {} letters, digits, `-`, `_`, `.` or `*`",
                shown(pattern),
                limits::NAME_LEN_MAX
            )
        });
    }

    pub(super) fn url(&mut self, path: &str, url: &str) {
        self.ensure(is_url(url), path, || {
            format!("`{}` is not a URL: expected `https://HOST…` or `http://HOST…`", shown(url))
        });
        self.ensure(url.len() <= limits::URL_LEN_MAX, path, || too_long(url.len(), limits::URL_LEN_MAX));
    }

    fn optional_url(&mut self, path: &str, url: Option<&str>) {
        if let Some(url) = url {
            self.url(path, url);
        }
    }

    /// Checks a URL that must not appear in messages.
    fn secret_url(&mut self, path: &str, url: &SecretText) {
        if url.is_hidden() {
            return;
        }
        self.ensure(is_url(url.expose()), path, || {
            "is not a URL: expected `https://HOST…` or `http://HOST…`".into()
        });
        let length = url.expose().len();
        self.ensure(length <= limits::URL_LEN_MAX, path, || too_long(length, limits::URL_LEN_MAX));
    }

    fn secret(&mut self, path: &str, secret: &SecretText) {
        let length = secret.expose().len();
        self.ensure((1..=limits::SECRET_LEN_MAX).contains(&length), path, || {
            format!("has {length} bytes: expected 1 to {}", limits::SECRET_LEN_MAX)
        });
        self.ensure(!secret.expose().chars().any(|c| c.is_control() || c.is_whitespace()), path, || {
            "must not contain spaces or control characters".into()
        });
    }

    fn password(&mut self, path: &str, password: &SecretText) {
        let length = password.expose().len();
        self.ensure((1..=limits::SECRET_LEN_MAX).contains(&length), path, || {
            format!("has {length} bytes: expected 1 to {}", limits::SECRET_LEN_MAX)
        });
        self.ensure(!password.expose().chars().any(char::is_control), path, || {
            "must not contain control characters".into()
        });
    }

    fn headers(&mut self, path: &str, headers: &std::collections::BTreeMap<String, SecretText>) {
        self.ensure(headers.len() <= limits::HEADERS_MAX, path, || {
            too_many(headers.len(), limits::HEADERS_MAX)
        });
        for (name, value) in headers {
            let at = format!("{path}.{}", shown(name));
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            self.ensure(is_name, &at, || {
                format!("`{}` is not the name of a header: expected letters, digits and `-`", shown(name))
            });
            let lower = name.to_ascii_lowercase();
            let reserved = ["host", "content-length", "content-type", "connection", "transfer-encoding"];
            self.ensure(!reserved.contains(&&*lower) && !lower.starts_with("webhook-"), &at, || {
                "is set by Belfry: remove it".into()
            });
            let value = value.expose();
            let ok = (1..=limits::SECRET_LEN_MAX).contains(&value.len())
                && value.bytes().all(|b| (0x20..0x7f).contains(&b));
            self.ensure(ok, &at, || {
                format!("expected 1 to {} printable ASCII characters", limits::SECRET_LEN_MAX)
            });
        }
    }

    fn one_line(&mut self, path: &str, text: &str) {
        let ok = !text.trim().is_empty()
            && text.len() <= limits::OWNER_LEN_MAX
            && !text.chars().any(char::is_control);
        self.ensure(ok, path, || {
            format!("expected 1 to {} bytes without control characters", limits::OWNER_LEN_MAX)
        });
    }

    /// Checks an address such as `ops@example.com` or `Belfry <ops@example.com>`.
    fn email(&mut self, path: &str, text: &str) {
        let address = match text.split_once('<') {
            Some((_, rest)) => rest.strip_suffix('>').unwrap_or_default(),
            None => text,
        };
        let is_address = address.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty()
                && !host.is_empty()
                && !address.contains(char::is_whitespace)
                && !host.contains('@')
        });
        let ok = is_address && text.len() <= 254 && !text.chars().any(char::is_control);
        self.ensure(ok, path, || {
            format!("`{}` is not an e-mail address: expected `USER@HOST` or `NAME <USER@HOST>`", shown(text))
        });
    }
}

/// Whether a text is a host name or address, with or without a port.
fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => match port.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return false,
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b));
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: serde_json::Value) -> String {
        let rule = serde_json::from_value(json).unwrap();
        alert_rule(&rule).map_or_else(|invalid| invalid.to_string(), |()| "valid".into())
    }

    fn to(json: serde_json::Value) -> String {
        let spec = serde_json::from_value(serde_json::json!({"name": "c", "to": json})).unwrap();
        channel(&spec).map_or_else(|invalid| invalid.to_string(), |()| "valid".into())
    }

    #[test]
    fn a_minimal_rule_is_valid() {
        let shown = rule(serde_json::json!({"name": "failed", "when": {"job_failed": {}}}));
        assert_eq!(shown, "valid");
    }

    #[test]
    fn each_wrong_field_of_a_rule_is_named() {
        let wrong = serde_json::json!({
            "name": "apply", "when": {"failure_rate": {"failures": 0, "within": "1s"}},
            "match": {"name": "pay roll"}, "notify": ["ops", "ops"], "repeat_every": "1s", "runbook": "wiki/page",
        });
        insta::assert_snapshot!(rule(wrong).replace("; ", "\n"), @"
        name: `apply` is reserved by the API: choose another name
        when.failure_rate.failures: `0` is out of range: expected 1 to 1000
        when.failure_rate.within: `1s` is out of range: expected 1m to 31d
        match.name: `pay roll` is not a pattern of names: expected 1 to 63 letters, digits, `-`, `_`, `.` or `*`
        notify[1]: repeats `ops`: expected each channel once
        repeat_every: `1s` is out of range: expected 1m to 7d
        runbook: `wiki/page` is not a URL: expected `https://HOST…` or `http://HOST…`
        ");
        let wrong = serde_json::json!({"name": "a", "when": {"no_success": {"within": "1d"}}, "match": {"name": "a*"}});
        insta::assert_snapshot!(rule(wrong), @"match.name: expected the name of a job without `*`, because `no_success` waits for the success of one name");
        let wrong = serde_json::json!({"name": "a", "when": {"worker_lost": {}}, "match": {"owner": "ann"}});
        insta::assert_snapshot!(rule(wrong), @"match.owner: cannot be combined with `worker_lost`: only conditions of jobs and monitors have it");
        let wrong = serde_json::json!({"name": "a", "when": {"monitor_down": {}}, "match": {"owner": "ann", "queue": "q"}});
        insta::assert_snapshot!(rule(wrong), @"match.queue: cannot be combined with `monitor_down`: only conditions of jobs have it");
    }

    #[test]
    fn each_wrong_field_of_an_escalation_is_named() {
        let wrong = serde_json::json!({
            "name": "a", "when": {"job_failed": {}}, "notify": ["ops"],
            "escalate": {"after": "1s", "notify": ["ops", "boss", "boss"]},
        });
        insta::assert_snapshot!(rule(wrong).replace("; ", "\n"), @"
        escalate.after: `1s` is out of range: expected 1m to 7d
        escalate.notify[0]: repeats `ops`: expected each channel once, in `notify` or here
        escalate.notify[2]: repeats `boss`: expected each channel once, in `notify` or here
        ");
        let wrong = serde_json::json!({
            "name": "a", "when": {"job_failed": {}}, "escalate": {"after": "1h", "notify": []},
        });
        insta::assert_snapshot!(rule(wrong).replace("; ", "\n"), @"
        escalate.notify: has 0 entries: expected 1 to 10
        escalate: needs channels in `notify`: the time counts from their notification
        ");
    }

    #[test]
    fn each_wrong_field_of_a_monitor_is_named() {
        let check = |json| {
            let spec = serde_json::from_value(json).unwrap();
            monitor(&spec).map_or_else(|invalid| invalid.to_string(), |()| "valid".into())
        };
        assert_eq!(check(serde_json::json!({"name": "backup", "timing": {"every": "1d"}})), "valid");
        let cron = serde_json::json!({"cron": {"expression": "30 2 * * *", "zone": "Europe/Berlin"}});
        assert_eq!(check(serde_json::json!({"name": "backup", "timing": cron})), "valid");
        let wrong = serde_json::json!({
            "name": "back up", "timing": {"every": "1s"}, "grace": "0s", "run_time_max": "40d", "owner": "",
        });
        insta::assert_snapshot!(check(wrong).replace("; ", "\n"), @"
        name: `back up` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        owner: has 0 bytes: expected 1 to 128
        timing.every: `1s` is out of range: expected 1m to 366d
        grace: `0s` is out of range: expected 1s to 31d
        run_time_max: `40d` is out of range: expected 1s to 31d
        ");
    }

    #[test]
    fn each_wrong_field_of_a_silence_is_named() {
        let now = "2026-11-30T12:00:00Z".parse().unwrap();
        let check = |json| {
            let new = serde_json::from_value(json).unwrap();
            silence(&new, now).map_or_else(|invalid| invalid.to_string(), |()| "valid".into())
        };
        let quiet = serde_json::json!({
            "duration": "9h", "recurrence": {"expression": "0 22 * * *", "zone": "Europe/Berlin"},
            "severity_max": "warning", "reason": "night",
        });
        assert_eq!(check(quiet), "valid");
        let wrong = serde_json::json!({
            "duration": "40d", "recurrence": {"expression": "0 22 * * *"}, "ends_at": "2026-11-30T11:00:00Z", "reason": "r",
        });
        insta::assert_snapshot!(check(wrong).replace("; ", "\n"), @"
        duration: `40d` is out of range: expected 1m to 31d
        ends_at: `2026-11-30T11:00:00Z` is out of range: expected a time from now to 2027-12-01T12:00:00Z
        ");
        let wrong = serde_json::json!({"duration": "1h", "ends_at": "2026-12-01T11:00:00Z", "reason": "r"});
        insta::assert_snapshot!(check(wrong), @"ends_at: needs `recurrence`: `duration` decides when another silence ends");
    }

    #[test]
    fn a_ping_has_a_kind_or_an_exit_code() {
        use crate::api::{NewPing, PingKind};
        let new = |kind, exit_code| NewPing { kind, exit_code, message: None };
        assert_eq!(new(None, None).reports(), PingKind::Success);
        assert_eq!(new(None, Some(0)).reports(), PingKind::Success);
        assert_eq!(new(None, Some(7)).reports(), PingKind::Fail);
        assert_eq!(new(Some(PingKind::Start), None).reports(), PingKind::Start);
        let wrong = ping(&new(Some(PingKind::Fail), Some(7))).unwrap_err().to_string();
        insta::assert_snapshot!(wrong, @"exit_code: cannot be combined with `kind`: 0 reports a success, and another exit code a failure");
    }

    #[test]
    fn a_wrong_channel_is_refused_without_its_secrets() {
        for (to_, text) in [
            (
                serde_json::json!({"slack": {"url": "geheim"}}),
                "to.slack.url: is not a URL: expected `https://HOST…` or `http://HOST…`",
            ),
            (
                serde_json::json!({"webhook": {"url": "https://a.example", "secret": "geheim"}}),
                "to.webhook.secret: has 6 bytes: expected at least 16",
            ),
            (
                serde_json::json!({"webhook": {"url": "https://me:geheim@a.example"}}),
                "to.webhook.url: `https://me:geheim@a.example` is not a URL: expected `https://HOST…` or `http://HOST…`",
            ),
            (
                serde_json::json!({"telegram": {"token": "a b", "chat": "1"}}),
                "to.telegram.token: must not contain spaces or control characters",
            ),
            (
                serde_json::json!({"email": {"to": ["ops@example.com"], "from": "Belfry <b@example.com>", "server": "smtp://mail", "username": "u", "password": "geheim"}}),
                "to.email.server: would send the password without encryption: use `smtps://` or `smtp+starttls://`",
            ),
        ] {
            assert_eq!(to(to_), text);
        }
        assert_eq!(to(serde_json::json!({"slack": {"url": "******"}})), "valid");
    }
}
