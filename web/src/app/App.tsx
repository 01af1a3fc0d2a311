/** Root component: theme, queries, notifications, and the sign-in page or the router. */

import { MantineProvider, useMantineColorScheme } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useSyncExternalStore } from "react";

import { onSessionChange, sessionNumber } from "../api/auth";
import { feed } from "../api/feed";
import { startRefreshing, queryClient } from "../api/queries";
import { usePreferences } from "../lib/preferences";
import { closeDialog } from "./dialogs";
import { clearWatched, startEndNotifications } from "./endNotifications";
import { preloadPages } from "./lazyPage";
import { nonce } from "./nonce";
import { router } from "./router";
import { SignIn } from "./SignIn";
import { theme } from "./theme";

export function App() {
  const current = useSyncExternalStore(onSessionChange, sessionNumber);
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <Theme />
      <QueryClientProvider client={queryClient}>
        <Notifications position="bottom-right" limit={4} />
        {current === 0 ? <SignIn /> : <SignedIn key={current} />}
      </QueryClientProvider>
    </MantineProvider>
  );
}

function SignedIn() {
  useEffect(() => {
    feed.start();
    const stops = [startRefreshing(), startEndNotifications(), router.subscribe("onRendered", preloadPages)];
    return () => {
      stops.forEach((stop) => stop());
      closeDialog();
      clearWatched();
      feed.stop();
      queryClient.clear();
    };
  }, []);
  return <RouterProvider router={router} />;
}

function Theme() {
  const { theme: colorScheme } = usePreferences();
  const { setColorScheme } = useMantineColorScheme();
  useEffect(() => setColorScheme(colorScheme), [colorScheme, setColorScheme]);
  return null;
}
