import { existsSync } from "node:fs";

import { defineConfig } from "@playwright/test";

/** A Chromium of this machine: nothing is downloaded. */
const chromium = [
  process.env.CHROMIUM,
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path && existsSync(path));

export default defineConfig({
  testDir: "e2e",
  outputDir: "e2e/report/results",
  // Each has a server of its own. More than the cores of a small machine make every test slower, and all no faster.
  workers: 2,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [["list"]],
  use: {
    viewport: { width: 1440, height: 900 },
    locale: "en-US",
    timezoneId: "UTC",
    permissions: ["clipboard-read", "clipboard-write"],
    // Animations cost time and change nothing that a test checks.
    contextOptions: { reducedMotion: "reduce" },
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath: chromium,
      args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    },
  },
});
