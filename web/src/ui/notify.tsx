/** Notifications, and actions that report their result. */

import { Button, Group } from "@mantine/core";
import { notifications } from "@mantine/notifications";

import { isTakeover, ApiError } from "../api/errors";
import i18n from "../i18n";
import { copyText } from "../lib/clipboard";
import { errorText } from "./errorText";

/** Shows a notification, optionally with a button that opens the result. */
export function notify(message: string, go?: { label: string; run: () => void } | null): void {
  const id = notifications.show({
    color: "ink",
    withBorder: true,
    message: go ? (
      <Group justify="space-between" gap="md">
        {message}
        <Button
          variant="default"
          onClick={() => {
            notifications.hide(id);
            go.run();
          }}
        >
          {go.label}
        </Button>
      </Group>
    ) : (
      message
    ),
  });
}

/** Copies a text and shows a notification. */
export async function copyAndNotify(text: string): Promise<void> {
  notify(i18n.t((await copyText(text)) ? "common.copied" : "common.notCopied"));
}

/** Runs an action; shows the message `done` on success, else the error. Returns undefined on failure. */
export async function runAction<T>(action: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await action();
    if (done) notify(done);
    return result;
  } catch (error) {
    notifyError(error);
    return undefined;
  }
}

/** Shows a notification about an error. */
export function notifyError(error: unknown): void {
  const apiError = ApiError.from(error);
  const { title, hint } = errorText(apiError, i18n.t);
  notifications.show({
    color: isTakeover(apiError) ? "yellow" : "red",
    withBorder: true,
    autoClose: 10_000,
    title,
    message: [hint, apiError.code].filter(Boolean).join(" · "),
  });
}
