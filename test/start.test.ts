import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test, vi } from 'vitest'
import { isAlive, run, spawnEntry, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 120_000 })

const folder = mkdtempSync(join(tmpdir(), 'oncehook-start-test-'))
chmodSync(folder, 0o755)
const secretFile = join(folder, 'shop-secret')
writeFileSync(secretFile, 'shop_secret_one')
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const port = await new Promise<number>((done) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const address = server.address()
    server.close(() => done(address && typeof address === 'object' ? address.port : 0))
  })
})
const environment = {
  PORT: String(port),
  ONCEHOOK_CONFIG: fileURLToPath(new URL('../oncehook.config.ts', import.meta.url)),
  SHOP_WEBHOOK_SECRETS_FILE: secretFile,
}

const launched: number[] = []
afterAll(() => {
  for (const pid of launched) if (isAlive(pid)) process.kill(pid, 'SIGKILL')
})

function launch() {
  const { child, output, exited } = spawnEntry(['start'], environment, ['ignore', 'pipe', 'pipe'], { cwd: folder })
  const pid = child.pid as number
  launched.push(pid)
  return { pid, output, exited, kill: (signal: NodeJS.Signals) => void child.kill(signal) }
}

/** All processes under this one, with what they run. */
function processesUnder(pid: number): { pid: number; command: string }[] {
  const all = execFileSync('ps', ['-A', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' })
    .split('\n')
    .flatMap((line) => {
      const [, own, parent, command] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? []
      return own && parent ? [{ pid: Number(own), parent: Number(parent), command: command ?? '' }] : []
    })
  const under = (parent: number): typeof all => all.filter((it) => it.parent === parent).flatMap((it) => [it, ...under(it.pid)])
  return under(pid)
}

const allGone = (processes: { pid: number }[]) =>
  until(() => processes.every(({ pid }) => !isAlive(pid)), 'every process under the start is gone')

/** Runs one of the printed commands as it stands. */
const shell = (output: string, marker: string) => {
  const line = output.split('\n').find((it) => it.startsWith('  curl') && it.includes(marker)) ?? 'false'
  return execFileSync('sh', ['-c', line], { encoding: 'utf8' })
}

test('start brings up everything, refuses a second one, keeps its data, and leaves nothing behind', async () => {
  const startedAt = performance.now()
  const first = launch()
  await until(() => first.output().includes('Read what became of it') && first.output().includes('/v1/sends\n\n'), 'it is up')
  const upAfter = performance.now() - startedAt
  const accepted = shell(first.output(), '/webhooks/shop')
  const duplicate = shell(first.output(), '/webhooks/shop')
  await until(() => shell(first.output(), '/v1/sends').includes('"status":"delivered"'), 'the email is reported as delivered')
  const second = await run(['start'], environment, { cwd: folder })
  const underFirst = processesUnder(first.pid)
  first.kill('SIGINT')
  const firstEnd = await first.exited
  await allGone(underFirst)
  const withoutStart = await run(['sends', 'list'], {}, { cwd: folder })

  // Ten seconds on a machine that does nothing else; here it shares two cores with all the other tests.
  expect(upAfter).toBeLessThan(20_000)
  for (const line of [
    `http://127.0.0.1:${port}/webhooks/`,
    `ops page        http://127.0.0.1:${port}/ops/sign-in?code=`,
    'operator token  och_',
    'database        postgres://',
    'email sandbox   http://',
  ])
    expect(first.output()).toContain(line)
  expect(accepted).toContain('"status":"accepted"')
  expect(duplicate).toContain('"status":"duplicate"')
  expect(second.code).toBe(78)
  expect(second.stderr).toContain(`port ${port} on 127.0.0.1 is in use`)
  expect(second.stderr).toContain(`PORT=${port + 1} npm start`)
  expect(firstEnd).toEqual({ code: 0, signal: null })
  expect(
    ['serve', 'worker', 'database-process', 'postgres -D'].filter(
      (it) => !underFirst.some(({ command }) => command.includes(it)),
    ),
  ).toEqual([])
  expect([withoutStart.code, withoutStart.stderr]).toEqual([78, expect.stringContaining('no npm start runs in this folder')])

  // The second time: the data is there, a part that dies comes back, SIGHUP reads the secret file again, and SIGKILL is the end of all.
  const again = launch()
  await until(
    () => again.output().includes('Read what became of it') && again.output().includes('/v1/sends\n\n'),
    'it is up again',
  )
  const kept = shell(again.output(), '/v1/sends')
  // The link of a start ends with it; the new one opens the page of the same operator.
  const links = [first, again].map((it) => /http:\S+\/ops\/sign-in\?code=\S+/.exec(it.output())?.[0] ?? '')
  const opened = await Promise.all(links.map(async (link) => (await fetch(link)).status))
  const listed = await run(['sends', 'list'], {}, { cwd: folder })
  const serve = processesUnder(again.pid).find(({ command }) => command.endsWith('oncehook.js serve'))
  process.kill(serve?.pid ?? 0, 'SIGKILL')
  await until(async () => (await healthz()) === 200 && !isAlive(serve?.pid ?? 0), 'the service is back where it was')
  const before = shell(again.output(), '/webhooks/shop')
  writeFileSync(secretFile, 'shop_secret_two')
  again.kill('SIGHUP')
  await until(() => again.output().split('configuration read again').length === 3, 'both parts have read it again')
  const after = shell(again.output(), '/webhooks/shop')
  const underAgain = processesUnder(again.pid)
  again.kill('SIGKILL')
  await again.exited
  await allGone(underAgain)

  expect(kept).toContain('"status":"delivered"')
  expect(opened).toEqual([410, 200])
  expect(listed.stdout).toContain('ada@example.com')
  expect([before.includes('"status"'), after]).toEqual([true, ''])
  expect(underAgain.length).toBeGreaterThan(3)
})

test('a start that is killed before it is up leaves no process behind', async () => {
  const early = launch()
  const parts = await until(() => {
    const found = processesUnder(early.pid)
    return found.some(({ command }) => command.endsWith('oncehook.js serve')) && found
  }, 'the service is being started')

  early.kill('SIGKILL')
  await early.exited

  await allGone(parts)
})

async function healthz(): Promise<number> {
  return fetch(`http://127.0.0.1:${port}/healthz`).then(
    ({ status }) => status,
    () => 0,
  )
}
