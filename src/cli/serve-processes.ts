import cluster, { type Worker } from 'node:cluster'
import { createLog } from '../log.ts'
import { dropEnvFile, type Settings } from '../settings.ts'
import { introduceSiblings } from './siblings.ts'
import { stopOnSignal } from './stop-on-signal.ts'

const EXIT_CONFIGURATION = 78
const FIRST_RESTART_AFTER_MS = 500
const LAST_RESTART_AFTER_MS = 30_000
/** With no process serving, so many starts in a row that fail end the parent: then whoever looks after it has to see. */
const MOST_FAILED_STARTS = 5
const GRACE_BEYOND_MS = 5_000

/**
 * Runs `WEB_CONCURRENCY` serving processes on one port until SIGTERM, which drains them all; SIGHUP goes on to each. One that dies is
 * started again, with a growing delay while starts fail. Resolves with the exit code.
 */
export async function serveProcesses(settings: Settings): Promise<number> {
  const log = createLog(settings.logLevel, 'serve-parent')
  const siblings = introduceSiblings(log)
  const children = new Set<Worker>()
  const serving = new Set<Worker>()
  const end = Promise.withResolvers<number>()
  let hasServed = false
  let isReady = false
  let failedStarts = 0
  let isStopping = false
  // Each child reads `.env` itself, now and on SIGHUP.
  dropEnvFile()

  const stop = (exitCode: number) => {
    if (isStopping) return
    isStopping = true
    const signal = (name: NodeJS.Signals) => {
      for (const child of children) child.process.kill(name)
    }
    signal('SIGTERM')
    const force = setTimeout(() => signal('SIGKILL'), settings.shutdownGraceMs + GRACE_BEYOND_MS)
    const codes = [...children].map(
      (child) => new Promise<number>((done) => child.once('exit', (code: number | null) => done(code === 0 ? 0 : 1))),
    )
    void Promise.all(codes).then((all) => {
      clearTimeout(force)
      end.resolve(Math.max(exitCode, ...all))
    })
  }

  const start = () => {
    if (isStopping) return
    const child = cluster.fork()
    children.add(child)
    siblings.join(child)
    child.on('message', (message: { ready?: string }) => {
      if (message.ready === undefined) return
      serving.add(child)
      failedStarts = 0
      if (!isReady && serving.size === settings.webConcurrency) {
        isReady = true
        log.info({ url: message.ready, processes: serving.size }, 'all processes are serving')
        process.send?.({ ready: message.ready })
      }
      if (hasServed) return
      hasServed = true
      // The first shows whether they can start at all.
      for (let count = 1; count < settings.webConcurrency; count += 1) start()
    })
    child.once('exit', (code: number | null, signal: NodeJS.Signals | null) => {
      children.delete(child)
      const wasServing = serving.delete(child)
      if (isStopping) return
      const facts = { child: child.process.pid, ...(signal ? { signal } : { code }) }
      if (!wasServing) failedStarts += 1
      if (!hasServed || (serving.size === 0 && failedStarts >= MOST_FAILED_STARTS)) {
        log.fatal({ ...facts, failedStarts }, 'the serving processes end before they are ready; their last lines say why')
        return stop(code === EXIT_CONFIGURATION ? EXIT_CONFIGURATION : 1)
      }
      const afterMs = Math.min(LAST_RESTART_AFTER_MS, FIRST_RESTART_AFTER_MS * 2 ** failedStarts)
      log.error({ ...facts, afterMs }, 'a serving process has ended by itself; another one is started')
      setTimeout(start, afterMs)
    })
  }

  stopOnSignal(() => stop(0))
  process.on('SIGHUP', () => {
    for (const child of children) child.process.kill('SIGHUP')
  })
  // Whoever started this process is gone.
  process.once('disconnect', () => stop(1))
  if (process.send && !process.connected) return 1
  start()
  const exitCode = await end.promise
  log.info('stopped')
  return exitCode
}
