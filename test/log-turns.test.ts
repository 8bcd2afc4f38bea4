import { expect, test } from 'vitest'
import { reconcileLog } from '../src/ops/reconcile-log.ts'
import { readSendingLog } from '../src/sends/log-file.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()
const LINES = 20_000
const file = Buffer.from(
  ['To,ID,Status,Date', ...Array.from({ length: LINES }, (_, line) => `a${line}@x.example,m_${line},sent,1764424800`)].join('\n'),
)
async function* inOnePiece() {
  yield file
}

/** What something answers, and in how many turns of the event loop others could be answered meanwhile. */
async function turnsOf<Answer>(done: Promise<Answer>): Promise<{ answer: Answer; turns: number }> {
  let turns = 0
  let isDone = false
  const count = () => {
    turns += 1
    if (!isDone) setImmediate(count)
  }
  setImmediate(count)
  const answer = await done.finally(() => {
    isDone = true
  })
  return { answer, turns }
}

test('a sending log that comes in one piece is read in many turns, so that webhooks are answered meanwhile', async () => {
  const { answer, turns } = await turnsOf(readSendingLog(inOnePiece(), {}, 'UTC'))

  expect('lines' in answer && answer.lines.length).toBe(LINES)
  // One for each 50 lines.
  expect(turns).toBeGreaterThanOrEqual(400)
})

test('and no turn goes through more than 50 of its messages', async () => {
  let turn = 0
  let isDone = false
  const count = () => {
    turn += 1
    if (!isDone) setImmediate(count)
  }
  setImmediate(count)
  const messages = new Map<number, number>()

  const reconciled = await reconcileLog({ pool, isExclusive: () => true }, inOnePiece(), {
    columns: {},
    zone: 'UTC',
    by: undefined,
    onProgress: () => messages.set(turn, (messages.get(turn) ?? 0) + 1),
  })
  isDone = true

  expect('summary' in reconciled && reconciled.summary).toEqual({ settles: 0, adds: 0, known: 0, look: 0, nothing: LINES })
  expect([...messages.values()].reduce((sum, some) => sum + some, 0)).toBe(LINES)
  expect(Math.max(...messages.values())).toBe(50)
})
