import { defineConfig, env, key } from 'oncehook'

// Razorpay's ID of an event stands in a header that is not signed; the keys are made of the objects' own IDs.
export default defineConfig({
  sources: {
    razorpay: { provider: 'razorpay', secrets: env.list('RAZORPAY_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'razorpay',
      type: 'payment.captured',
      email: ({ payload: { payment } }) => ({
        key: key('payment', payment.entity.id, 'captured'),
        to: payment.entity.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'razorpay',
      type: 'payment.failed',
      // A customer may try several times in a row: one email for the order, not one for each try.
      email: ({ payload: { payment } }) => ({
        key: key('order', payment.entity.order_id, 'failed'),
        to: payment.entity.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'razorpay',
      type: 'refund.processed',
      email: ({ payload: { refund, payment } }) => ({
        key: key('refund', refund.entity.id, 'processed'),
        to: payment.entity.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'razorpay',
      type: ['subscription.cancelled', 'subscription.completed'],
      // Without a payment in it the event has no address: put it into the notes of the subscription.
      email: ({ payload: { subscription, payment } }) => ({
        key: key('subscription', subscription.entity.id, 'ended'),
        to: payment?.entity.email ?? subscription.entity.notes?.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'razorpay',
      type: 'settlement.processed',
      email: ({ payload: { settlement } }) => ({
        key: key('settlement', settlement.entity.id, 'processed'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Razorpay has settled ${settlement.entity.id}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
