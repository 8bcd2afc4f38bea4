import { defineConfig, env, key } from 'oncehook'

// Square signs the address as you entered it there: notificationUrl must be the same text. Of the objects only the payment
// carries the buyer's address; for the others look it up by their customer_id.
export default defineConfig({
  sources: {
    square: {
      provider: 'square',
      secrets: env.list('SQUARE_WEBHOOK_SECRETS'),
      notificationUrl: 'https://YOUR-HOST/webhooks/square',
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'square',
      type: ['payment.created', 'payment.updated'],
      // A payment is updated many times: the key lets one of them through.
      email: ({
        data: {
          object: { payment },
        },
      }) =>
        payment.status === 'COMPLETED' &&
        payment.buyer_email_address && {
          key: key('payment', payment.id, 'completed'),
          to: payment.buyer_email_address,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'square',
      type: 'invoice.scheduled_charge_failed',
      email: ({
        data: {
          object: { invoice },
        },
      }) => ({
        key: key('invoice', invoice.id, 'failed', invoice.version),
        to: invoice.primary_recipient?.email_address ?? invoice.buyer_email_address,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'square',
      type: 'refund.updated',
      email: ({
        data: {
          object: { refund },
        },
      }) =>
        refund.status === 'COMPLETED' &&
        refund.buyer_email_address && {
          key: key('refund', refund.id, 'completed'),
          to: refund.buyer_email_address,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'square',
      type: 'subscription.updated',
      email: ({
        data: {
          object: { subscription },
        },
      }) =>
        subscription.status === 'CANCELED' &&
        subscription.buyer_email_address && {
          key: key('subscription', subscription.id, 'ended'),
          to: subscription.buyer_email_address,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
    {
      name: 'payout',
      source: 'square',
      type: 'payout.paid',
      email: ({
        data: {
          object: { payout },
        },
      }) => ({
        key: key('payout', payout.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Square has paid out ${payout.id}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
