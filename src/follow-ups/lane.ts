// How one process works on the jobs of one queue: so many at once, what has ended is told together, and nothing waits for anything
// but a free place. It knows nothing of the job library.

export interface LaneJob {
  id: string
  /** What competes with others for the places, such as the source of an event; a job without one may take any. */
  groupId?: string | null
}

export interface LaneDeps<Job extends LaneJob> {
  /** So many run at once. */
  places: number
  /** Of these one group may have at most so many, so that one whose jobs hang leaves the others theirs. */
  placesOfGroup: number
  /** Takes waiting jobs, none of these groups. */
  fetch(atMost: number, notOf: readonly string[]): Promise<readonly Job[]>
  /** Rejects when the job is to be tried again. */
  run(job: Job): Promise<void>
  /** Tells the queue what has ended. */
  settle(completed: readonly Job[], failed: readonly Job[]): Promise<void>
  /** Tells the queue that these are still being worked on. */
  keep(jobs: readonly Job[]): Promise<void>
  onError(error: unknown): void
  pollEveryMs: number
  keepEveryMs: number
}

const PASS_BY_EVERY_MS = 100

export interface Lane {
  /** There may be jobs. */
  look(): void
  /** Takes no new jobs, waits for the running ones at most this long, and gives the rest back. */
  stop(timeoutMs: number): Promise<void>
}

/** Works on the jobs of a queue until stopped. */
export function openLane<Job extends LaneJob>(deps: LaneDeps<Job>): Lane {
  const { places, placesOfGroup } = deps
  const running = new Set<Job>()
  // Also those that have ended and that the queue has not been told of.
  const held = new Set<Job>()
  const completed: Job[] = []
  const failed: Job[] = []
  let isToLook = false
  let hasNotice = false
  let passedByAt = Number.NEGATIVE_INFINITY
  let passBy: NodeJS.Timeout | undefined
  let mayBeMore = false
  let looking: Promise<void> | undefined
  let settling: Promise<void> | undefined
  let isStopping = false
  let onIdle = () => undefined as unknown

  const groups = () => {
    const counts = new Map<string, number>()
    for (const { groupId } of running) if (groupId) counts.set(groupId, (counts.get(groupId) ?? 0) + 1)
    return counts
  }

  /**
   * A group that has more than half of its places is left alone, so that whatever the next fetch brings is not more than its group may
   * have, and yet is worth a fetch.
   */
  const next = () => {
    const counts = [...groups()]
    const notOf = counts.filter(([, count]) => count > placesOfGroup / 2).map(([group]) => group)
    const most = Math.max(0, ...counts.filter(([, count]) => count <= placesOfGroup / 2).map(([, count]) => count))
    return { notOf, atMost: Math.min(places - running.size, 2 * places - held.size, placesOfGroup - most) }
  }

  const look = () => {
    isToLook = true
    if (isStopping || looking) return
    looking = lookOn()
  }
  const lookOn = async () => {
    // What ends in this moment makes room together.
    await new Promise(setImmediate)
    while (isToLook && !isStopping) {
      isToLook = false
      const { atMost, notOf } = next()
      mayBeMore = atMost <= 0 || notOf.length > 0
      if (atMost <= 0 || (notOf.length > 0 && !mayPassBy())) break
      hasNotice = false
      try {
        const jobs = await deps.fetch(atMost, notOf)
        for (const job of jobs) void begin(job)
        if (jobs.length < atMost) continue
        isToLook = true
        // That was worth it, so the next one is, too.
        if (notOf.length === 0) continue
        passedByAt = Number.NEGATIVE_INFINITY
        hasNotice = true
      } catch (error) {
        // The next poll tries again.
        deps.onError(error)
        break
      }
    }
    // In the same breath as the look at the flag, so that no call comes in between.
    looking = undefined
  }

  /** A fetch that passes by all that waits of a group reads through it: only where something is new, and not again and again. */
  const mayPassBy = () => {
    if (!hasNotice) return false
    const wait = passedByAt + PASS_BY_EVERY_MS - performance.now()
    if (wait <= 0) {
      passedByAt = performance.now()
      return true
    }
    passBy ??= setTimeout(() => {
      passBy = undefined
      look()
    }, wait)
    return false
  }
  const noticed = () => {
    hasNotice = true
    look()
  }

  const begin = async (job: Job) => {
    running.add(job)
    held.add(job)
    const isDone = await deps.run(job).then(
      () => true,
      () => false,
    )
    if (!held.has(job)) return
    running.delete(job)
    ;(isDone ? completed : failed).push(job)
    if (mayBeMore) look()
    settling ??= settleOn()
  }

  const settleOn = async () => {
    await new Promise(setImmediate)
    while (completed.length + failed.length > 0) {
      const [ended, again] = [completed.splice(0), failed.splice(0)]
      // If it can't be told they look as if this process had died, and run again: they find that nothing is left to do.
      await deps.settle(ended, again).catch(deps.onError)
      for (const job of [...ended, ...again]) held.delete(job)
    }
    settling = undefined
    if (held.size === 0) onIdle()
    else if (mayBeMore) look()
  }

  const poll = setInterval(noticed, deps.pollEveryMs)
  const keep = setInterval(() => {
    if (held.size > 0) deps.keep([...held]).catch(deps.onError)
  }, deps.keepEveryMs)
  noticed()

  return {
    look: noticed,
    async stop(timeoutMs) {
      isStopping = true
      clearInterval(poll)
      clearTimeout(passBy)
      await looking
      await Promise.race([
        new Promise<void>((done) => {
          onIdle = done
          if (held.size === 0) done()
        }),
        new Promise((done) => setTimeout(done, timeoutMs).unref()),
      ])
      clearInterval(keep)
      await settling
      const rest = [...held]
      held.clear()
      if (rest.length > 0) await deps.settle([], rest).catch(deps.onError)
    },
  }
}
