/** Times and durations: short text, exact on hover. */

import { Tooltip } from "@mantine/core";

import { useNow } from "../lib/now";
import { usePreferences } from "../lib/preferences";
import { formatDuration } from "../lib/quantities";
import { formatExact, formatRelative } from "../lib/time";

/** Relative time; on hover the exact time in the chosen zone and in UTC. */
export function RelativeTime({ at, light }: { at: string | null | undefined; light?: boolean }) {
  const now = useNow();
  const { language, zone } = usePreferences();
  if (!at) return <span className="quiet">–</span>;
  const here = formatExact(at, language, zone);
  const utc = formatExact(at, language, "UTC");
  const both = here === utc ? here : `${here}\n${utc}`;
  const time = (
    <time dateTime={at} className="num" title={light ? both : undefined}>
      {formatRelative(at, language, now)}
    </time>
  );
  // Long tables use the browser's own tooltip, which costs nothing until it shows.
  if (light) return time;
  return (
    <Tooltip label={both} style={{ whiteSpace: "pre-line" }}>
      {time}
    </Tooltip>
  );
}

/** Exact time; on hover the relative time. */
export function AbsoluteTime({ at }: { at: string }) {
  const now = useNow();
  const { language, zone } = usePreferences();
  return (
    <Tooltip label={formatRelative(at, language, now)}>
      <time dateTime={at} className="num">
        {formatExact(at, language, zone)}
      </time>
    </Tooltip>
  );
}

/** Duration between two times, or until now, updated every second. */
export function Elapsed({ from, to }: { from: string | null | undefined; to?: string | null }) {
  if (!from) return <span className="quiet">–</span>;
  if (!to) return <LiveElapsed from={from} />;
  return <span className="num">{formatDuration(Date.parse(to) - Date.parse(from))}</span>;
}

function LiveElapsed({ from }: { from: string }) {
  const now = useNow();
  const whole = Math.max(0, Math.floor((now - Date.parse(from)) / 1_000)) * 1_000;
  return <span className="num">{whole < 10_000 ? `${whole / 1_000} s` : formatDuration(whole)}</span>;
}
