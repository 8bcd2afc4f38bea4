import { execFileSync } from 'node:child_process'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { lineOf, resolveLine, shellQuoted } from '../src/cli/command-line.ts'
import { asciiOnly, jsonOutput, mark, table, visible } from '../src/cli/output.ts'
import { createProgress } from '../src/cli/progress.ts'
import { finish, terminal } from '../src/cli/terminal.ts'

const rows = [
  [{ text: '✓ Delivered' }, { text: 'invoice:INV-1042:paid' }, { text: '1,204', isFigure: true }],
  [
    { text: '? Needs a decision', tone: 'ask' as const },
    { text: `refund:${'é'.repeat(70)}:done` },
    { text: '3', isFigure: true },
  ],
]
const headers = ['STATUS', 'KEY', 'CALLS']

describe('a table', () => {
  test('80 columns wide gives way in the middle of its keys, and has its figures at the right', () => {
    expect(table(headers, rows, [1], { width: 80, unicode: true })).toBe(
      [
        'STATUS              KEY                                                    CALLS',
        '✓ Delivered         invoice:INV-1042:paid                                  1,204',
        '? Needs a decision  refund:ééééééééééééééééééé…ééééééééééééééééééééé:done      3',
        '',
      ].join('\n'),
    )
  })

  test('120 columns wide shows everything', () => {
    expect(table(headers, rows, [1], { width: 120, unicode: true }).split('\n')[2]).toBe(
      `? Needs a decision  refund:${'é'.repeat(70)}:done      3`,
    )
  })

  test('as wide as it gets shortens nothing', () => {
    const long = 'k'.repeat(500)
    expect(table(['KEY'], [[{ text: long }]], [0], { width: Number.POSITIVE_INFINITY, unicode: true })).toBe(`KEY\n${long}\n`)
  })

  test('where only ASCII is known tells other characters by their numbers, within the width', () => {
    const text = table(['KEY', 'WHY'], [[{ text: 'a'.repeat(60) }, { text: 'é\u009b31m' }]], [0], { width: 60 })

    expect(text).toMatch(/^[\n\x20-\x7e]+$/)
    expect(text).toContain('<U+00E9><U+009B>31m')
    expect(Math.max(...text.split('\n').map((line) => line.length))).toBe(60)
  })

  test('is coloured only where it is told to', () => {
    expect(table(headers, rows, [1], { width: 120, unicode: true, color: true })).toContain(
      '\u001b[33m? Needs a decision\u001b[0m',
    )
    expect(table(headers, rows, [1], { width: 120, unicode: true })).not.toContain('\u001b')
  })
})

describe('C-67 text of strangers', () => {
  test.each([
    ['\u001b]0;title\u0007', '<U+001B>]0;title<U+0007>'],
    ['a\u202eb\u2066c', 'a<U+202E>b<U+2066>c'],
    ['a\u200b\u200d\ufeffb', 'a<U+200B><U+200D><U+FEFF>b'],
    ['a\u2028b\r\n', 'a<U+2028>b<U+000D><U+000A>'],
    ['a\u3164\u115f\u{e0001}b', 'a<U+3164><U+115F><U+E0001>b'],
    ['a\ufff9b\u0600', 'a<U+FFF9>b<U+0600>'],
    ['\ud800', '\ufffd'],
    ['Zoë 😀 日本', 'Zoë 😀 日本'],
  ])('%j is %j', (text, shown) => {
    expect(visible(text)).toBe(shown)
  })

  test('on a terminal that isn’t told to take UTF-8 has no byte that could be a command', () => {
    // In UTF-8 it ends in the byte 9B, which begins a command on such a terminal.
    expect(asciiOnly('✓ \u061b31m → done', false)).toBe('+ <U+061B>31m -> done')
    expect(JSON.parse(asciiOnly(jsonOutput({ text: 'Zoë 😀' }), true))).toEqual({ text: 'Zoë 😀' })
    expect(asciiOnly(jsonOutput({ text: 'Zoë 😀' }), true)).toMatch(/^[\n\x20-\x7e]+$/)
  })

  test('is written into a command so that the shell reads the very same', () => {
    for (const key of [
      'invoice:INV-1042:paid',
      "it's",
      'a b',
      '$(reboot) `x` "y" \\ !',
      '-rf',
      'x\u001b[2J\n\u202e😀',
      'é日本',
    ]) {
      const line = shellQuoted(key)
      expect(line).not.toMatch(/[\p{Cc}\p{Cf}]/u)
      expect(
        execFileSync('bash', ['--norc', '--noprofile', '-c', `printf %s ${line}`], { env: { LC_ALL: 'C.UTF-8' } }).toString(),
        line,
      ).toBe(key)
    }
  })
})

describe('a command to paste', () => {
  test('names the decision, the message and the place of the reason', () => {
    expect(resolveLine('invoice:INV-1042:paid', { decision: 'sent', messageId: 'm_93c' })).toBe(
      'oncehook sends resolve invoice:INV-1042:paid --decision sent --message-id m_93c --reason "…"',
    )
  })

  test('keeps a key that looks like an option from being one', () => {
    expect(lineOf('sends resolve', '--reopen', ['--decision sent'])).toBe('oncehook sends resolve --decision sent -- --reopen')
  })
})

test('JSON has integers beyond 2^53 as strings, and everything else as it is', () => {
  const value = {
    small: 9_007_199_254_740_991,
    big: 9_007_199_254_740_993n,
    double: 2 ** 60,
    half: 0.5,
    none: null,
    at: new Date(0),
  }

  expect(jsonOutput(value)).toBe(`{
  "small": 9007199254740991,
  "big": "9007199254740993",
  "double": "1152921504606847000",
  "half": 0.5,
  "none": null,
  "at": "1970-01-01T00:00:00.000Z"
}
`)
})

test('a line begins with how it went, in a form that the terminal knows', () => {
  expect(mark('bad', 'Not saved → 5', { unicode: true })).toBe('✕ Not saved → 5')
  expect(mark('bad', 'Not saved → 5', {})).toBe('x Not saved -> 5')
  expect(mark('good', 'a\u001bb', { unicode: true, color: true })).toBe('\u001b[32m✓ a<U+001B>b\u001b[0m')
})

describe('progress', () => {
  function progressAt(isWatched: boolean, unicode = true) {
    const said: string[] = []
    let now = 0
    const progress = createProgress('replay r_12', { isWatched, unicode, say: (text) => void said.push(text) }, () => now)
    const show = (at: number, done: number, beside?: string) => {
      now = at
      progress.show(done, 412, beside)
    }
    return { said, show, clear: progress.clear }
  }

  test('for people is a bar that is written over itself, at most ten times a second', () => {
    const { said, show, clear } = progressAt(true)
    show(0, 0, '0 sent  0 failed')
    show(50, 100, '1 sent  0 failed')
    show(6_000, 310, '7 sent  0 failed')
    clear()

    expect(said).toEqual([
      'replay r_12  ░░░░░░░░░░░░░░  0/412  0 sent  0 failed',
      '\r\u001b[Kreplay r_12  ███████████░░░  310/412  7 sent  0 failed  about 1.9 s left',
      '\r\u001b[K',
    ])
  })

  test('elsewhere is one line each 5 s, without any command to a terminal', () => {
    const { said, show, clear } = progressAt(false)
    for (let at = 0; at <= 10_500; at += 500) show(at, at / 50)
    clear()

    expect(said).toEqual(['replay r_12  100/412  about 15.6 s left\n', 'replay r_12  200/412  about 10.6 s left\n'])
  })

  test('in ASCII has a bar of its own', () => {
    const { said, show } = progressAt(true, false)
    show(0, 206)

    expect(said).toEqual(['replay r_12  #######.......  206/412  about 0 ms left'])
  })
})

describe('the terminal', () => {
  const kept = [process.stdin, process.stdout, process.stderr].map((stream) => [stream, stream.isTTY] as const)
  const columns = process.stdout.columns
  const isTTY = (is: boolean) => {
    for (const [stream] of kept) Object.defineProperty(stream, 'isTTY', { value: is, configurable: true, writable: true })
    Object.defineProperty(process.stdout, 'columns', { value: 100, configurable: true, writable: true })
  }
  afterEach(() => {
    vi.unstubAllEnvs()
    vi.restoreAllMocks()
    for (const [stream, was] of kept) Object.defineProperty(stream, 'isTTY', { value: was, configurable: true, writable: true })
    Object.defineProperty(process.stdout, 'columns', { value: columns, configurable: true, writable: true })
  })
  const given = (environment: Record<string, string>) => {
    for (const name of ['NO_COLOR', 'TERM', 'LC_ALL', 'LC_CTYPE', 'LANG']) vi.stubEnv(name, environment[name] ?? '')
  }

  test('has colours, its width and people who can be asked', () => {
    isTTY(true)
    given({ TERM: 'xterm', LANG: 'de_DE.UTF-8' })

    expect(terminal({})).toMatchObject({ width: 100, color: true, unicode: true, zone: undefined, isWatched: true })
    expect(terminal({}).ask).toBeTypeOf('function')
    expect(terminal({ wide: true }).width).toBe(Number.POSITIVE_INFINITY)
  })

  test.each<[string, Record<string, string>, object]>([
    ['NO_COLOR', { NO_COLOR: '1', TERM: 'xterm' }, {}],
    ['TERM=dumb', { TERM: 'dumb' }, {}],
    ['--no-color', { TERM: 'xterm' }, { color: false }],
  ])('has no colours with %s', (_name, environment, options) => {
    isTTY(true)
    given(environment)

    expect(terminal(options).color).toBe(false)
  })

  test('in a pipe has no width, no colours, and nobody to ask', () => {
    isTTY(false)
    given({ TERM: 'xterm', LANG: 'C.UTF-8' })

    expect(terminal({ wide: true })).toMatchObject({ width: undefined, color: false, isWatched: false, ask: undefined })
  })

  test('takes the zone of the machine only where that is asked for', () => {
    expect(terminal({}).zone).toBeUndefined()
    expect(terminal({ local: true }).zone).toBe(new Intl.DateTimeFormat().resolvedOptions().timeZone)
  })

  test.each([
    [{ LANG: 'en_US.UTF-8' }, true],
    [{ LANG: 'en_US.UTF-8', LC_ALL: 'C' }, false],
    [{ LC_CTYPE: 'de_DE.utf8', LANG: 'C' }, true],
    [{}, false],
  ])('with %j is taken to know more than ASCII: %s', (environment, unicode) => {
    given(environment)

    expect(terminal({}).unicode).toBe(unicode)
  })

  test('that knows only ASCII gets nothing else, a pipe gets all', () => {
    const written: unknown[] = []
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => written.push(text) > 0)
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(text) > 0)
    const exitCode = process.exitCode
    given({})
    isTTY(true)
    finish({ stdout: 'Zoë ✓\n', stderr: '…\n', exitCode: 0 })
    isTTY(false)
    finish({ stdout: 'Zoë ✓\n', stderr: '…\n', exitCode: 0 })
    process.exitCode = exitCode

    expect(written).toEqual(['Zo<U+00EB> +\n', '...\n', 'Zoë ✓\n', '…\n'])
  })
})
