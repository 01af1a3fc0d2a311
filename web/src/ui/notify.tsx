/** Doing something: with a word of what came of it, or of why not. */

import { Button, Group } from "@mantine/core";
import { notifications } from "@mantine/notifications";

import { isTakeover, ApiError } from "../api/errors";
import i18n from "../i18n";
import { copyText } from "../lib/clipboard";
import { errorText } from "./errorText";

/** Says that something was done; with where to see it, if there is such a place. */
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

/** Copies a text, and says so. */
export async function copyAndNotify(text: string): Promise<void> {
  notify(i18n.t((await copyText(text)) ? "common.copied" : "common.notCopied"));
}

/** Runs an action; shows what it says on success, and the apiError otherwise. */
export async function runAction<T>(action: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await action();
    if (done) notify(done);
    return result;
  } catch (error) {
    const apiError = ApiError.from(error);
    const { title, hint } = errorText(apiError, i18n.t);
    notifications.show({
      color: isTakeover(apiError) ? "yellow" : "red",
      withBorder: true,
      autoClose: 10_000,
      title,
      message: [hint, apiError.code].filter(Boolean).join(" · "),
    });
    return undefined;
  }
}
