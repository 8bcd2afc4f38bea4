import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { describeError, maskAddresses } from '../src/log.ts'

test('I17 an error is logged by its class, code and text: no address, and nothing that a query brought along', () => {
  const error = Object.assign(new TypeError('no such box: Ada <ada.l+x@mail.example.com>, retry'), {
    code: '23505',
    constraint: 'webhook_events_once',
    detail: 'Key (recipient)=(ada@example.com) already exists.',
    query: 'insert …',
    parameters: ['secret'],
  })

  const described = describeError(error)

  expect(described).toEqual({
    name: 'TypeError',
    code: '23505',
    constraint: 'webhook_events_once',
    text: 'no such box: Ada <[address]>, retry',
    stack: expect.stringContaining('log.test.ts'),
  })
  expect(JSON.stringify(described)).not.toMatch(/ada|secret|insert/)
})

test('what is no error is told too: the plain objects of the job library, and anything thrown', () => {
  expect(describeError({ message: 'queue is away', stack: 'Error\n at x', queue: 'send', detail: 'secret' })).toEqual({
    text: 'queue is away',
    stack: ' at x',
  })
  expect(describeError('bea@example.com said no')).toEqual({ text: '[address] said no' })
  expect(describeError(undefined)).toEqual({ text: 'undefined' })
})

test('masking takes linear time', () => {
  const started = performance.now()

  for (const text of ['a@'.repeat(50_000), '@'.repeat(100_000), 'a'.repeat(100_000)]) maskAddresses(text)

  expect(performance.now() - started).toBeLessThan(100)
})

test('each line has its own time, in a second that goes on, in the next and when the clock is set back', async () => {
  const times = [
    '2026-11-30T23:59:58.999Z',
    '2026-11-30T23:59:59.000Z',
    '2026-11-30T23:59:59.007Z',
    '2026-11-30T23:59:59.070Z',
    '2026-12-01T00:00:00.700Z',
    '2026-11-30T23:59:59.001Z',
    '1969-12-31T23:59:59.999Z',
  ]
  const program = `const { createLog } = await import(${JSON.stringify(new URL('../src/log.ts', import.meta.url).href)})
    const log = createLog('info', 'test')
    for (const time of ${JSON.stringify(times)}) {
      Date.now = () => Date.parse(time)
      log.info('a line')
    }`

  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program])

  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).time),
  ).toEqual(times)
})

test('a process whose log nobody reads any more still ends', async () => {
  const program = `const { createLog } = await import(${JSON.stringify(new URL('../src/log.ts', import.meta.url).href)})
    const log = createLog('info', 'test')
    log.info('unread')
    process.once('message', () => {
      log.info('after the reader has gone')
      log.info('the last line')
      process.exit(7)
    })
    process.send('ready')`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  await once(child, 'message')

  child.stdout?.destroy()
  child.send('go on')
  const waited = setTimeout(() => child.kill('SIGKILL'), 10_000)

  expect(await once(child, 'exit')).toEqual([7, null])
  clearTimeout(waited)
})

const endings = [
  {
    end: 'an exception',
    code: `setImmediate(() => { log.info('last'); throw new Error('nobody catches this') })`,
    exit: [1, null],
  },
  { end: 'a rejection', code: `log.info('last'); void Promise.reject(new Error('nobody catches this'))`, exit: [1, null] },
  { end: 'its own exit', code: `log.info('last'); process.exit(3)`, exit: [3, null] },
  {
    end: 'a signal that it stops on',
    code: `process.once('SIGTERM', () => { log.info('last'); process.exit(0) }); process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 60_000)`,
    exit: [0, null],
  },
]

test.each(endings)(
  'lines that are gathered are all written, in their order, when the process ends by $end',
  async ({ code, exit }) => {
    const program = `const { createLog } = await import(${JSON.stringify(new URL('../src/log.ts', import.meta.url).href)})
    const log = createLog('info', 'test', { gathers: true })
    for (let number = 1; number <= 3; number += 1) log.info('line ' + number)
    ${code}`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'ignore'] })
    let text = ''
    child.stdout?.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })

    expect(await once(child, 'close')).toEqual(exit)

    const lines = text.trimEnd().split('\n')
    expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['line 1', 'line 2', 'line 3', 'last'])
  },
)

test('gathered lines go out at the end of the turn, and none waits for another', async () => {
  const program = `const { createLog } = await import(${JSON.stringify(new URL('../src/log.ts', import.meta.url).href)})
    const log = createLog('info', 'test', { gathers: true })
    log.info('first')
    setTimeout(() => {}, 60_000)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'ignore'] })

  const [line] = await once(child.stdout?.setEncoding('utf8') as NodeJS.ReadableStream, 'data') // piped above
  child.kill('SIGKILL')

  expect(line).toContain('"msg":"first"')
})
