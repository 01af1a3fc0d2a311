//! Bounds of the state of alerts.

use model::Duration;

/// Most open alerts of a rule; one more alert stands for all further objects.
pub const OPEN_MAX: usize = 1_000;
/// Most alerts that a notification lists.
pub const LISTED_MAX: usize = 20;
/// Newest jobs and runs that an alert names.
pub const NAMED_MAX: usize = 20;
/// Shortest time between two notifications of a rule.
pub const GROUP_INTERVAL: Duration = Duration::from_secs(60);
/// Time during which a delivery is repeated.
pub const DELIVERY_TIME_MAX: Duration = Duration::from_hours(24);
/// Delay before the first repetition of a delivery; it doubles each time.
pub const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Longest delay before a repetition of a delivery.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(300);
/// Most notifications of a channel that wait for delivery. Of more, the oldest one fails.
pub const WAITING_MAX: usize = 1_000;
/// Time after the last occurrence after which an alert about failures is resolved.
pub const STALE_AFTER: Duration = Duration::from_hours(24 * 7);
/// Interval of noting that a state of further objects still lasts.
pub const REFRESH_INTERVAL: Duration = Duration::from_hours(1);
/// Time for which resolved alerts are kept.
pub const RESOLVED_RETENTION: Duration = Duration::from_hours(24 * 30);
/// Most resolved alerts that are kept.
pub const RESOLVED_MAX: usize = 10_000;
/// Time for which delivered and failed notifications are kept.
pub const NOTIFICATION_RETENTION: Duration = Duration::from_hours(24 * 7);
/// Most delivered and failed notifications that are kept.
pub const NOTIFICATIONS_MAX: usize = 10_000;
/// Most names of jobs and workflows of a rule whose failures are counted. Of more, the oldest count is dropped.
pub const STREAKS_MAX: usize = 1_000;
/// Time after the last failure after which failures in a row are forgotten.
pub const STREAK_RETENTION: Duration = Duration::from_hours(24 * 31);
/// Time after a load in which a missing ping takes no monitor down.
pub const LOAD_GRACE: Duration = Duration::from_secs(60);
/// Interval of deleting old rows.
pub const PURGE_INTERVAL: Duration = Duration::from_secs(600);
