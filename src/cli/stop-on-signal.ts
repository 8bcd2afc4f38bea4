/** A second signal ends the process at once, but not within this time: a terminal and npm both pass on one Ctrl-C. */
const SECOND_SIGNAL_AFTER_MS = 1_000

/** Has SIGINT and SIGTERM close this process. */
export function stopOnSignal(close: () => unknown): void {
  let firstAt: number | undefined
  const onSignal = () => {
    if (firstAt === undefined) {
      firstAt = performance.now()
      close()
    } else if (performance.now() - firstAt > SECOND_SIGNAL_AFTER_MS) process.exit(1)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
}
