import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** Where a server runs that `npm run dev` speaks to. */
const server = process.env.BELFRY_URL ?? "http://127.0.0.1:7070";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2023",
    assetsInlineLimit: 0,
    // Pages load what they need; this bounds the largest of the pieces.
    chunkSizeWarningLimit: 600,
  },
  server: { proxy: { "/api": server, "/readyz": server, "/openapi.json": server, "/docs": server } },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
