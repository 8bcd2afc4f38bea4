import type { Worker } from 'node:cluster'
import type { Log } from '../log.ts'
import { keepCounts, type Siblings, type Snapshot } from '../ops/joint-metrics.ts'

// How the serving processes of one port come to each other's figures: each asks the parent, and the parent asks all.

/** From a child: its own figures, for a question or as its last word, or a question of its own. */
type FromChild = { own: Snapshot; question?: number } | { ask: number } | { failed: number }
/** To a child: a question for its own figures, or what all have answered. */
type ToChild = { question: number } | { answer: number; all?: Snapshot[] }

/** Sooner than Prometheus gives up. */
const ANSWER_WITHIN_MS = 4_000

/** The child's side, over the channel to its parent. */
export function siblingsOf(channel: NodeJS.Process): Siblings & { lastWord(): Promise<void> } {
  let own = async (): Promise<Snapshot> => []
  let asked = 0
  const answers = new Map<number, (all: Snapshot[] | undefined) => void>()
  const send = (message: FromChild) => new Promise<void>((done) => channel.send?.(message, () => done()) ?? done())
  channel.on('message', (message: ToChild) => {
    if ('answer' in message) answers.get(message.answer)?.(message.all)
    else if ('question' in message)
      own().then(
        (snapshot) => void send({ own: snapshot, question: message.question }),
        () => void send({ failed: message.question }),
      )
  })
  return {
    tell(figures) {
      own = figures
    },
    async ask() {
      asked += 1
      const number = asked
      try {
        const all = await new Promise<Snapshot[] | undefined>((resolve) => {
          answers.set(number, resolve)
          setTimeout(() => resolve(undefined), ANSWER_WITHIN_MS + 500).unref()
          void send({ ask: number })
        })
        if (!all) throw new Error('not every process of this port has told its figures')
        return all
      } finally {
        answers.delete(number)
      }
    },
    lastWord: async () => send({ own: await own() }),
  }
}

/** The parent's side: passes questions on, and keeps what ended processes have counted. */
export function introduceSiblings(log: Log): { join(child: Worker): void } {
  const children = new Set<Worker>()
  const last = new Map<Worker, Snapshot>()
  const awaited = new Map<number, { missing: Set<Worker>; done(isWhole: boolean): void }>()
  let ended: Snapshot = []
  let keeping = Promise.resolve()
  let questions = 0

  /** Resolves with whether all have answered. */
  const ask = () =>
    new Promise<boolean>((done) => {
      questions += 1
      const number = questions
      const timer = setTimeout(() => finish(false), ANSWER_WITHIN_MS)
      const finish = (isWhole: boolean) => {
        clearTimeout(timer)
        awaited.delete(number)
        done(isWhole)
      }
      awaited.set(number, { missing: new Set(children), done: finish })
      for (const child of children) child.send({ question: number } satisfies ToChild, () => undefined)
    })
  const answered = (child: Worker, number: number) => {
    const question = awaited.get(number)
    question?.missing.delete(child)
    if (question?.missing.size === 0) question.done(true)
  }

  const answer = async (child: Worker, number: number) => {
    const isWhole = await ask()
    await keeping
    const all = isWhole ? { all: [ended, ...last.values()] } : {}
    if (child.isConnected()) child.send({ answer: number, ...all } satisfies ToChild, () => undefined)
  }

  return {
    join(child) {
      children.add(child)
      child.on('message', (message: FromChild) => {
        if ('own' in message) {
          last.set(child, message.own)
          if (message.question !== undefined) answered(child, message.question)
        } else if ('failed' in message) awaited.get(message.failed)?.done(false)
        else if ('ask' in message) void answer(child, message.ask)
      })
      // One that was killed has told its last figures with the last question; what it counted since is lost, as with any process.
      child.once('exit', () => {
        children.delete(child)
        const counted = last.get(child)
        last.delete(child)
        if (counted) {
          keeping = keeping
            .then(async () => {
              ended = await keepCounts(ended, counted)
            })
            .catch((error: unknown) => log.error({ error }, 'what an ended process has counted is lost'))
        }
        for (const number of awaited.keys()) answered(child, number)
      })
    },
  }
}
