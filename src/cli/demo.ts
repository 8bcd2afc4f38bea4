import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { readSettings } from '../settings.ts'
import { say, stories } from './demo-stories.ts'
import { type Launched, launch } from './launch.ts'

const sampleConfig = fileURLToPath(new URL('../../oncehook.config.ts', import.meta.url))

/** `oncehook demo`: tells its stories on a service of its own, in a temporary folder. Exit code 1 when one ends otherwise. */
export async function demoCommand(): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'oncehook-demo-'))
  chmodSync(directory, 0o755)
  const environment = {
    NODE_ENV: 'development',
    PORT: '0',
    HOST: '127.0.0.1',
    ONCEHOOK_CONFIG: sampleConfig,
    LOG_LEVEL: 'error',
    // What a dead worker left is found after seconds instead of minutes.
    ONCEHOOK_STALE_AFTER_MS: '2000',
    ONCEHOOK_SWEEP_EVERY_MS: '500',
  }
  const stderr = new Writable({ write: (chunk, _encoding, done) => void process.stderr.write(chunk, () => done()) })
  const interruption = new Error('interrupted')
  const interrupted = new Promise<never>((_done, fail) => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => fail(interruption))
  })
  // It may come while nobody waits for it yet.
  interrupted.catch(() => undefined)
  let launched: Launched | undefined
  try {
    say('Starting a database, the email sandbox, the service and a worker …')
    launched = await launch(readSettings(environment), { directory, output: stderr, environment })
    await Promise.race([tell(launched), interrupted])
    say('\nNo email went out twice, and what nobody could know was left to a person.')
    return 0
  } catch (error) {
    say(`\nThe demo went wrong: ${error instanceof Error ? error.message : error}`)
    return error === interruption ? 130 : 1
  } finally {
    await launched?.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function tell(launched: Launched): Promise<void> {
  const { sandbox } = launched
  if (!sandbox) throw new Error('the demo needs the sandbox')
  for (const [index, { title, tell }] of stories.entries()) {
    say(`\n${index + 1}. ${title}`)
    await tell(launched, sandbox)
  }
}
